"""The rules of the queue: pure decisions over the rows of one transaction.

- ``rows``: the rows as the rules use them, free locks passed on, and text that rows can hold
- ``addition``: new jobs, duplicates, backpressure and turns
- ``dependencies``: rows that wait for others, and the effects of an end on them
- ``limits``: slots and starts given to rows with a limit
- ``candidates``: rows that a claim takes or holds back
- ``next_jobs``: jobs of the next claim, and the start of one job
- ``settlement``: ends of claims and their effects on parents and locks; repair after a crash
- ``cancellation``: cancelled jobs and their children
- ``requeue``: failed and cancelled jobs run again
- ``pauses``: phases of a pause, and the position of a resume
- ``pause_batches``: a resume in bounded batches
- ``retention``: deletion of rows
"""
