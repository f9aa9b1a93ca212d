"""Pure rules, and the I/O around them: persist first, then apply, then answer; timers and markers."""
