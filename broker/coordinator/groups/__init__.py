"""The I/O around the rules of groups: persist, apply, answer; timers, offsets."""
