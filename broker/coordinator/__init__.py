"""The I/O around the rules: persist first, then apply, then answer; timers and markers."""
