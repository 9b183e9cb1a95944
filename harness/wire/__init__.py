"""Dialects, sans-io: a Request becomes bytes, stamped bytes become an Answer."""
