"""Ready-made listeners and middleware: logs, Prometheus metrics, OpenTelemetry traces, an observer of errors.

Every app writes logs; nothing else here is loaded, or costs anything, unless an app asks for it.
"""

from penstock.telemetry.logs import Logs
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.observer import ErrorObserver, observe
from penstock.telemetry.tracing import Tracing

__all__ = ["ErrorObserver", "Logs", "Metrics", "Tracing", "observe"]
