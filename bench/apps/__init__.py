"""The smallest applications there are: one function that does nothing, on each queue that is measured."""
