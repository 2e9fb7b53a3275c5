"""The worker: takes jobs from a queue, and tasks from a catalog, and runs them in child processes.

Above the children, in the supervisor's process:

    supervisor         keeps the children running, renews leases, writes progress, reads cancel flags; its
                       watchdog enforces timeouts, CPU budgets and cancels
    launch             checks of the options, and the supervisor's options from an assembly
    pool               spawns children, collects dead ones and settles their jobs; the start of a child
    upkeep             periodic duties (reaper, pruner, reconciler, sweeper, schedules) and when they run
    store_keeper       fills and clears a store outside the catalog, in a thread
    vector_upkeep      merges the keyword index and compacts vector cache files, in a process of its own
    liveness_lock      shows other workers whether a supervisor lives, and releases the claims of dead ones

In a child:

    child              the loop: claim, run, settle, and task batches in between
    executor           calls a handler and turns its result or error into settlements; the outbox of results
    lanes              task batches of the catalog: OCR, vectors, graph
    process_guard      keeps the process usable after a handler, and says when it is replaced

Used by both:

    shared_state       memory shared by a child and its supervisor
    orphans            claims without a living holder: found, and settled as lost or released
    outage             waiting for a store that is unavailable

Without children, in the caller's process:

    in_process         a worker in a thread, and the jobs and small folders that a command runs itself

The way of a job: ``Child._claim`` takes a batch through ``Outbox.exchange``, which settles earlier results in
the same transaction. ``Executor.execute`` writes the jobs of one call to the shared state and calls the
handler. ``Child._finish`` puts the settlements into the outbox. Meanwhile the supervisor renews the lease and
writes the progress (``Supervisor._renew``, ``_sync_progress``), and the watchdog kills the child if a job
exceeds its time. After a death ``ProcessPool.collect_dead`` and ``settle_dead`` settle the jobs: those being
executed are lost or failed, the others are released. When the supervisor dies too, another worker on the host
does the same through ``liveness_lock.release_dead``; on another host the reaper waits for the lease to end.
"""
