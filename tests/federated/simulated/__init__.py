"""A federation in one process, from one seed: sites, mailbox, network, disks and keys that a seed makes fail."""
