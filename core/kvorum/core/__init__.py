"""Values, errors, limits and keys that every other part of Kvorum shares. Pure: no I/O, no clock."""
