"""Calls a running service with the generated Python client: `python calls.py ADDRESS KEY`."""

import sys
import time
from io import BytesIO

from tidegate_client import AuthenticatedClient
from tidegate_client.api.batches import get_batch, seal_batch
from tidegate_client.api.groups import list_groups, pause_group
from tidegate_client.api.jobs import enqueue_batch_jobs
from tidegate_client.api.workers import lease_jobs, settle_leases
from tidegate_client.models import (
    BatchStatus,
    EnqueueJobs,
    JobOutcome,
    JobPriority,
    Lease,
    NewJob,
    Problem,
    SettledAs,
    Settle,
    Settlement,
)
from tidegate_client.types import File

address, key = sys.argv[1:]
client = AuthenticatedClient(base_url=address, token=key, raise_on_unexpected_status=True)
group, batch = "python", "newsletter"


def same(what, seen, expected):
    assert seen == expected, f"{what}: {seen!r} instead of {expected!r}"


def good(what, answer):
    assert not isinstance(answer, Problem), f"{what}: {answer}"
    assert answer is not None, what
    return answer


jobs = [
    NewJob(id="mail-1", type_="MAIL", payload={"to": "ada@example.com"}),
    NewJob(id="mail-2", type_="MAIL", priority=JobPriority.LOW),
]


def add():
    return good(
        "enqueueBatchJobs",
        enqueue_batch_jobs.sync(group, batch, client=client, body=EnqueueJobs(jobs=jobs)),
    )


first = add()
same("accepted", (first.accepted, first.duplicates, first.refused, first.batch), (2, 0, 0, batch))
again = add()
same("duplicates", (again.accepted, again.duplicates), (0, 2))
lines = File(payload=BytesIO(b'{"id": "mail-1", "type": "MAIL"}\n{"id": "mail-2", "type": "MAIL"}\n'))
streamed = good("NDJSON", enqueue_batch_jobs.sync(group, batch, client=client, body=lines))
same("streamed", (streamed.accepted, streamed.duplicates, streamed.refused), (0, 2, 0))
sealed = good("sealBatch", seal_batch.sync(group, batch, client=client))
same("sealed", (sealed.total_jobs, sealed.batch_complete), (2, False))


def read_batch():
    return good("getBatch", get_batch.sync(group, batch, client=client))


waiting = read_batch()
same("batch", (waiting.id, waiting.sealed, waiting.counts.to_dict()), (batch, True, {"total": 2, "success": 0, "failed": 0}))
assert abs(waiting.created_at.timestamp() - time.time()) < 3600, waiting.created_at

leased = good("leaseJobs", lease_jobs.sync(client=client, body=Lease(max_=2, wait_ms=5000)))
same(
    "leased",
    sorted((job.id, job.priority, job.payload) for job in leased.jobs),
    [("mail-1", JobPriority.NORMAL, {"to": "ada@example.com"}), ("mail-2", JobPriority.LOW, None)],
)
settlements = [
    Settlement(lease=job.lease, outcome=JobOutcome.COMPLETED, result={"sent": job.id}) for job in leased.jobs
]
settled = good("settleLeases", settle_leases.sync(client=client, body=Settle(settlements=settlements)))
same("settled", [one.state for one in settled.settled], [SettledAs.COMPLETED, SettledAs.COMPLETED])

finished = read_batch()
for _ in range(100):
    if finished.status == BatchStatus.COMPLETED:
        break
    time.sleep(0.1)
    finished = read_batch()
same(
    "finished batch",
    (finished.status, finished.counts.to_dict()),
    (BatchStatus.COMPLETED, {"total": 2, "success": 2, "failed": 0}),
)

groups = good("listGroups", list_groups.sync(client=client, limit=10))
same("groups", sum(one.id == group for one in groups.items), 1)
good("pauseGroup", pause_group.sync(group, client=client))

missing = get_batch.sync(group, "nothing", client=client)
assert isinstance(missing, Problem), missing
same("problem", (missing.status, missing.code), (404, "unknown_batch"))
stranger = list_groups.sync_detailed(client=AuthenticatedClient(base_url=address, token="nobody"))
assert isinstance(stranger.parsed, Problem), stranger
same("stranger", (stranger.status_code, stranger.parsed.code), (401, "unauthorized"))
