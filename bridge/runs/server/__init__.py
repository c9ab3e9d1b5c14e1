"""HTTP handlers of durable runs, queued runs, tasks, stored responses and single-run sessions."""
