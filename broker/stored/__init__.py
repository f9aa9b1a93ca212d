"""What a broker stores in small files beside its logs: configs and ACLs."""
