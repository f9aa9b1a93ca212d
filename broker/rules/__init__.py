"""The broker's rules, pure: state, request and time in; next state, records to write and answer out."""
