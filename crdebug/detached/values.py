"""What the verbs for jobs without a debugger take, from packages below. `ui` imports it here."""

from crdebug.checkpoint.retention import Keep, Upkeep
from crdebug.job.given import Given, from_a_shell
from crdebug.job.over_hosts import Named

__all__ = ["Given", "Keep", "Named", "Upkeep", "from_a_shell"]
