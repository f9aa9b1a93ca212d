"""The I/O around the rules of transactions: persist, apply, answer; timers, markers, producer ids."""
