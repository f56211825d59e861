"""Facts and a workload become a plan of changes; a plan is applied with a way back; what is already set is linted."""
