"""One module a contender: how jobs are added to it, and how its workers are started."""
