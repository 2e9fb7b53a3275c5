"""Penstock beside the queues people use today, on the same stores, doing the same nothing."""
