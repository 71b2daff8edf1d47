"""Values, errors, limits and keys that every other part of Kvorum shares; pure."""
