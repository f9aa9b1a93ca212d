"""The shell around the rules of transactions: persist, apply, answer; timers, markers, producer ids."""
