"""Reading a log back: after a crash, after a disk that failed, and what stopped half-way."""
