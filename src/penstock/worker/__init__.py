"""The worker: takes jobs from a queue, and tasks from a catalog, and runs them in child processes.

Above the children, in the supervisor's process:

    supervisor         keeps the children running, renews leases, writes progress, reads cancel flags
    pool               spawns children, collects dead ones and settles their jobs; options of a worker
    child_handle       one child as the supervisor sees it: process, shared state, pending kill
    watchdog           enforces timeouts, CPU budgets and cancels in a thread that never uses the store
    upkeep             periodic duties (reaper, pruner, reconciler, sweeper, ...) and their schedule
    schedule_runner    adds jobs of schedules whose time has come
    store_keeper       fills and clears a store outside the catalog, in a thread
    vector_upkeep      merges the keyword index and compacts vector cache files, in a process of its own
    liveness_lock      shows other workers whether a supervisor lives, and releases the claims of dead ones

In a child:

    child              the loop: claim, run, settle, and task batches in between
    batch_size         how many jobs to claim at once, and how long tasks may run
    executor           calls a handler and turns its result or error into settlements
    beside_jobs        jobs that mostly wait for the network, in threads
    breaker            circuit breakers for services that are down
    outbox             results on their way to the store
    background_batch   tasks that wait for a service, in a thread
    lanes              task batches of the catalog: OCR, vectors, graph
    document_notifier  settles jobs that wait for a document when the document has ended
    isolation          restores the process between two functions, or has it replaced
    process_guard      undoes what a handler did to its process: signals, forks, directories, streams

Used by both:

    shared_state       memory shared by a child and its supervisor
    orphans            claims without a living holder: found, and settled as lost or released
    stopped            the exception that ends a handler
    log_text           jobs and errors as text for rows and logs

Without children, in the caller's process:

    thread_worker      executor, lanes and outbox in a thread, for tests and small scripts
    small_job          one note, small file or folder of a command, while no worker runs
    small_folder       which folders and files of them that is

The way of a job: ``Child._claim`` takes a batch through ``Outbox.exchange``, which settles earlier results in
the same transaction. ``Child._execute`` writes the jobs of one call to the shared state, and ``Executor.run``
calls the handler. ``Child._finish`` puts the settlements into the outbox. Meanwhile the supervisor renews the
lease and writes the progress (``Supervisor._renew``, ``_sync_progress``), and the watchdog kills the child if
a job exceeds its time. After a death ``ProcessPool.collect_dead`` and ``settle_dead`` settle the jobs: those
being executed are lost or failed, the others are released. When the supervisor dies too, another worker on
the host does the same through ``liveness_lock.release_dead``; on another host the reaper waits for the lease
to end.
"""
