"""What coordinators and leaders know: offsets, transactions, producers, configs."""
