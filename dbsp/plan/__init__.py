"""Planning: from the logical circuit to physical nodes, cut into segments at the exchanges."""
