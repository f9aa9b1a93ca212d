"""What travels between Spark's processes has a version: two versions of eoslog in one application stop,
loudly."""

import pickle
from typing import Any

import pytest

from eoslog.connector.commit.task_reports import Begun
from eoslog.connector.sink import begin_on_driver
from eoslog.connector.sink.task_message import TaskMessage, check_forms
from eoslog.connector.spark.libraries import EnvironmentUnfit
from eoslog.connector.spark.pickled_form import FORM


class Writer(begin_on_driver.BeginsWhenPickled):
    """One that needs no broker."""

    def _begin(self) -> Begun | None:
        return None


def sent(monkeypatch: pytest.MonkeyPatch, form: int) -> bytes:
    """A writer as a driver of this form pickles it."""
    with monkeypatch.context() as older:
        older.setattr(begin_on_driver, "FORM", form)
        options: Any = None
        return pickle.dumps(Writer(options))


def test_a_writer_of_another_version_is_refused_in_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(pickle.loads(sent(monkeypatch, FORM)), Writer)
    for form in (FORM - 1, FORM + 1):
        with pytest.raises(
            EnvironmentUnfit, match=f"form {FORM}, and one of form {form} came.*Install the same"
        ):
            pickle.loads(sent(monkeypatch, form))


def test_a_writer_of_a_version_without_forms_is_refused() -> None:
    with pytest.raises(EnvironmentUnfit, match="one of form None came"):
        Writer.__new__(Writer).__setstate__({"_options": None, "_begun": None, "_pickled": True})


def test_a_report_of_another_version_is_refused_on_the_driver() -> None:
    older = TaskMessage.__new__(TaskMessage)
    vars(older)["report"] = None
    for message in (TaskMessage(FORM + 1, None), older):
        with pytest.raises(EnvironmentUnfit, match="different versions of eoslog"):
            check_forms([TaskMessage(FORM, None), message])
    check_forms([TaskMessage(FORM, None), None])
