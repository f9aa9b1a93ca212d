"""Rules of transactions, and the I/O around them: persist, apply, answer; timers, markers, producer ids."""
