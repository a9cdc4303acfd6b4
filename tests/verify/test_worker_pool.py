"""Workers that die or lose their device: the job that did it has failed, and every other is run."""

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from generator.verify import worker_pool
from generator.verify.jobs import Failure, Job, JobResult

JOBS = [Job("gpu", Path("x"), f"kernel{number}") for number in range(6)]


class Workers:
    """Stands for the pools of one run; `answer` is what a job comes to in a pool that is still whole."""

    def __init__(self, answer):
        self.answer = answer
        self.pools = []

    def __call__(self, level, workers):
        self.pools.append(workers)
        self.spoilt = self.broken = False
        return self

    def submit(self, job):
        future = Future()
        result = None if self.broken else self.answer(job, self.spoilt)
        if result is None:
            self.broken = True
            future.set_exception(BrokenProcessPool())
        else:
            self.spoilt |= result.lost
            future.set_result(result)
        return future

    def close(self):
        pass


def outcome(monkeypatch, workers):
    monkeypatch.setattr(worker_pool, "Pool", workers)
    monkeypatch.setattr(worker_pool, "as_completed", lambda futures: futures)
    found = list(worker_pool.results("gpu", JOBS, 4))
    assert len(found) == len(JOBS)
    return {result.job.name: result for result in found}


def test_jobs_that_pass_need_one_pool(monkeypatch):
    workers = Workers(lambda job, spoilt: JobResult(job, cases=1))
    assert outcome(monkeypatch, workers).keys() == {job.name for job in JOBS}
    assert workers.pools == [4]


def test_a_job_that_ends_its_process_has_failed_and_no_other(monkeypatch):
    workers = Workers(lambda job, spoilt: None if job.name == "kernel2" else JobResult(job, cases=1))
    found = outcome(monkeypatch, workers)
    assert [name for name, result in found.items() if result.failures] == ["kernel2"]


def test_a_lost_device_fails_the_job_that_lost_it_and_no_other(monkeypatch):
    def answer(job, spoilt):
        if spoilt:
            return JobResult(job, lost=True)
        if job.name == "kernel2":
            return JobResult(job, cases=3, failures=(Failure("one", "r", "illegal access"),), lost=True)
        return JobResult(job, cases=1)

    workers = Workers(answer)
    found = outcome(monkeypatch, workers)
    assert [name for name, result in found.items() if result.failures] == ["kernel2"]
    assert all(result.cases for result in found.values())
    assert len(workers.pools) == 2
