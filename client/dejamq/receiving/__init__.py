"""From a pull to the handler's door: fetched batches, process queues, memory limits and the journal of deliveries.

The event loop owns each process queue, and an assignment holds it. Enter at ``fetcher`` and ``process_queue``.
"""
