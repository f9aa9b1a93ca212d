"""What a broker keeps in small files beside its logs, and what follows from it: configs, access rules."""
