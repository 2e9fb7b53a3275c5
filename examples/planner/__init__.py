"""A planner that gives work to workers and puts their results together, each step a function on the queue.

python -m examples.planner.run
"""
