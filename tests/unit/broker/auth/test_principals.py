"""ssl.principal.mapping.rules: the examples of KIP-371 and of Kafka's own tests."""

import pytest

from tailrace.broker.auth.principals import map_subject, parse_rules
from tailrace.model.errors import KafkaError

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("DN=SOMEBODY,CN=duke", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems", None),
    ],
)
def test_the_first_rule_that_fits_counts(subject, name):
    assert map_subject(parse_rules(RULES), subject) == name


def test_default_takes_the_subject_as_it_is():
    assert map_subject(parse_rules(RULES + ",DEFAULT"), "OU=JavaSoft,O=Sun") == "OU=JavaSoft,O=Sun"
    assert map_subject(parse_rules("DEFAULT"), "CN=a") == "CN=a"
    assert map_subject(parse_rules(""), "CN=a") == "CN=a"


def test_a_group_that_is_not_there_and_an_empty_name():
    assert map_subject(parse_rules("RULE:CN=(.*)/$1-$2/"), "CN=a") == "a-$2"
    assert map_subject(parse_rules("RULE:CN=(.*)/$1/"), "CN=") is None


@pytest.mark.parametrize("text", ["DEFAUL", "RULE:CN=(.*)/$1", "RULE:CN=(/$1/", "DEFAULT RULE:a/b/", "RULE:a/b/X"])
def test_rules_that_cannot_be_read(text):
    with pytest.raises(KafkaError, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(text)
