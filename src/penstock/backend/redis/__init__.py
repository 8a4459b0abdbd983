"""Redis and Valkey."""

from penstock.backend.redis.backend import RedisBackend

__all__ = ["RedisBackend"]
