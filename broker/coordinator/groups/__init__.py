"""The rules of groups, and the I/O around them: persist, apply, answer; timers, offsets."""
