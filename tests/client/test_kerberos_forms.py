"""The JAAS texts of docs/evidence.md, row by row: taken as what, or refused with which words."""

import re

import pytest

from eoslog.client.wire.security_settings import KerberosSettings
from eoslog.connector.options.source_options import source_options
from eoslog.errors import OptionError
from tests.docs.reader import ROOT

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
ME = "spark@REALM"
KEYTAB, CACHE = KerberosSettings("kafka", ME, "/k"), KerberosSettings("kafka")
BY_KEYTAB = f'useKeyTab=true keyTab="/k" principal="{ME}"'

FORMS: dict[str, KerberosSettings | str] = {
    BY_KEYTAB: KEYTAB,
    'useKeyTab=true keyTab="file:/k" principal="spark/host@REALM"':
        KerberosSettings("kafka", "spark/host@REALM", "/k"),
    f'useKeyTab=true keyTab="spark.keytab" principal="{ME}"': KerberosSettings("kafka", ME, "spark.keytab"),
    "useKeyTab=true": "needs keyTab and principal: give both",
    'useKeyTab=true keyTab="/k"': "needs keyTab and principal: give both",
    f'keyTab="/k" principal="{ME}"': "keyTab is given without useKeyTab=true",
    f'useKeyTab=yes keyTab="/k" principal="{ME}"': "keyTab is given without useKeyTab=true",
    "useTicketCache=true": CACHE,
    'useTicketCache=true ticketCache="/c"': KerberosSettings("kafka", ticket_cache="/c"),
    f'useTicketCache=true principal="{ME}"': KerberosSettings("kafka", ME),
    'ticketCache="/c"': "ticketCache is given without useTicketCache=true",
    f"useTicketCache=true {BY_KEYTAB}": KEYTAB,
    f'principal="{ME}"': "Spark asks nobody for a password: give useKeyTab=true",
    'useTicketCache=true serviceName="kafka"': CACHE,
    'useTicketCache=true serviceName="other"': "serviceName is not kafka.sasl.kerberos.service.name",
    f"{BY_KEYTAB} storeKey=true doNotPrompt=true": KEYTAB,
    "useTicketCache=true doNotPrompt=true debug=true refreshKrb5Config=true": CACHE,
    "useTicketCache=true storeKey=true doNotPrompt=true": CACHE,
    "useTicketCache=true tryFirstPass=true useFirstPass=true storePass=true clearPass=true": CACHE,
    "useFirstPass=true": "Spark asks nobody for a password",
    "useTicketCache=true isInitiator=true renewTGT=false": CACHE,
    "useTicketCache=true isInitiator=false": "isInitiator=false is for brokers",
    "useTicketCache=true renewTGT=true": "renewTGT=true renews tickets of a cache, and eoslog does not",
    f'useTicketCache=true principle="{ME}"': "has no option principle: did you mean principal?",
    'useTicketCache=true password="..."': "has no option password: give useKeyTab=true",
}  # fmt: skip
WHOLE = {
    f"com.ibm.security.auth.module.Krb5LoginModule required {BY_KEYTAB};": "IBM's old Java",
    f"com.ibm.security.auth.module.Krb5LoginModule required useKeytab=/k principal={ME};": "IBM's old Java",
    f"{MODULE} required {BY_KEYTAB}; {MODULE} required useTicketCache=true;": "one login module only",
    f"KafkaClient {{ {MODULE} required {BY_KEYTAB}; }};": "what stands between { and }; give it as com.sun.",
    f"{MODULE} required {BY_KEYTAB}": 'the final ";" is missing; give it as com.sun.',
    f"{MODULE} {BY_KEYTAB};": 'a class and "required"; give it as com.sun.',
}


def settings(text: str, **more: str) -> KerberosSettings | None:
    given = {
        "kafka.bootstrap.servers": "b:9092", "subscribe": "t", "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": text,
    }  # fmt: skip
    sasl = source_options(given | more, stream=False).client.security.sasl
    assert sasl is not None and sasl.mechanism == "GSSAPI"
    return sasl.kerberos


SERVICE = {"kafka.sasl.kerberos.service.name": "kafka"}


def test_each_form_of_the_page_is_one_of_these() -> None:
    page = (ROOT / "docs" / "evidence.md").read_text().partition("\n## JAAS texts of Kerberos\n")[2]
    rows = dict(re.findall(r"(?m)^\| `(.*?)` \| (taken|refused)", page.partition("\n#")[0]))
    ours = {form: "refused" if isinstance(wanted, str) else "taken" for form, wanted in FORMS.items()}
    assert len(rows) > 10 and rows.items() <= ours.items()


@pytest.mark.parametrize("flag", ["required", "requisite", "sufficient", "optional", "REQUIRED"])
@pytest.mark.parametrize("form", FORMS)
def test_a_form(form: str, flag: str) -> None:
    wanted, text = FORMS[form], f"{MODULE} {flag} {form};"
    if not isinstance(wanted, str):
        assert settings(text, **SERVICE) == wanted
        return
    with pytest.raises(OptionError, match=re.escape(wanted)) as raised:
        settings(text, **SERVICE)
    assert ME not in str(raised.value), "no value of the text is shown"


@pytest.mark.parametrize("text", WHOLE)
def test_a_text_that_is_not_one_module_of_java(text: str) -> None:
    with pytest.raises(OptionError, match=re.escape(WHOLE[text])) as raised:
        settings(text, **SERVICE)
    assert ME not in str(raised.value)


def test_the_service_may_be_in_the_text_alone() -> None:
    assert settings(f'{MODULE} required useTicketCache=true serviceName="kafka";') == CACHE
    with pytest.raises(OptionError, match=r"option kafka\.sasl\.kerberos\.service\.name is missing"):
        settings(f"{MODULE} required useTicketCache=true;")
