"""Example application: a planner creates workers and combines their results. Each step is a function job.

python -m examples.planner.run
"""
