"""What goes on beside requests: retention, cleaning, scrubbing, the return of partitions, backups."""
