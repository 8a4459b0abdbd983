"""Every block of code of every page is run: here, or by the test that its page is given below.

Here the blocks of a page run one after the other, in one directory and on one server. `Shell.block` says how.
"""

from pathlib import Path

import pytest

from tests.support.pages import PAGES, ROOT, blocks_of, name_of
from tests.support.shell import Shell

ELSEWHERE = {
    "README.md": "test_readme.py",
    "CONTRIBUTING.md": "test_make_targets.py",
    "docs/flows.md": "../spark/test_documents.py",
    "docs/lake.md": "../spark/test_documents.py",
    "docs/journal.md": "../spark/test_documents.py",
    "docs/agents.md": "test_agents_document.py",
    "docs/changes.md": "test_changes_document.py",
    "docs/howto/deploy.md": "test_deploy_document.py",
    "docs/jobs.md": "test_jobs_document.py",
    "docs/jobs-cron.md": "test_jobs_more_documents.py",
    "docs/jobs-migration.md": "test_jobs_more_documents.py",
    "docs/manager.md": "test_manager_document.py",
    "docs/security.md": "test_security_document.py",
    "docs/tutorial.md": "../spark/test_documents.py",
    "docs/migration/spark-redis.md": "../spark/test_documents.py",
    "docs/tail.md": "test_tail_document.py",
    "docs/web.md": "test_web_document.py",
    "docs/reference/metrics.md": "test_readme.py",
}
WITH_CODE = {name_of(page): page for page in PAGES if blocks_of(page)}
HERE = sorted(WITH_CODE.keys() - ELSEWHERE.keys())


@pytest.mark.parametrize("name", HERE)
def test_the_blocks_of_a_page_do_what_it_says(name: str, shell: Shell) -> None:
    for block in blocks_of(WITH_CODE[name]):
        shell.block(block)


def test_pages_that_are_run_elsewhere_are_read_there() -> None:
    for page, test in ELSEWHERE.items():
        assert page in WITH_CODE, f"{page} has no code any more"
        source = (ROOT / "tests" / "docs" / test).read_text()
        assert Path(page).name in source, f"tests/docs/{test} does not read {page}"
