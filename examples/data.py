"""Made-up input for the examples: each function yields the same tuples whenever it is given the same seed.

Nothing is made before an example runs; the examples pass these functions to `flow.source` as callables.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
LETTERS = string.ascii_lowercase
VOCABULARY = (  # the most frequent words first
    "the of and to in is was for as with by on river city music film war king science island team album church "
    "species football school university railway village president station language empire theory planet"
)

# ------------------------------------------------------------------------------------------------ logwatch

PLANTED_EVERY = 8_000  # attempts between two planted break-ins


def log_lines(count: int, seed: int = 17) -> Iterator[str]:
    """`count` lines of an sshd log: guesses from many hosts, logins of honest users, and planted break-ins."""
    return islice(_endless_log(Random(seed)), count)


def _endless_log(random: Random) -> Iterator[str]:
    hosts = [f"203.0.113.{number}" for number in range(1, 200)]
    guessed = ["root", "admin", "ftp", "mysql", "backup", "postgres"]
    honest = ["ada", "grace", "edsger", "barbara"]
    second, line, process = 0, 0, 1_000
    while True:
        second += random.randrange(1, 4)
        process += 2
        line += 1
        if line % PLANTED_EVERY == 0:
            host, user = random.choice(hosts), random.choice(guessed)
            for _ in range(random.randrange(40, 90)):
                second += random.randrange(1, 3)
                yield _failure(second, process, host, user)
            yield _success(second + 5, process, user)
        elif random.random() < 0.01:  # an honest user, who mistypes the password now and then
            user = random.choice(honest)
            if random.random() < 0.3:
                yield _failure(second, process, "198.51.100.7", user)
            yield _success(second + 1, process, user)
        elif random.random() < 0.4:
            yield f"{_stamp(second)} gate sshd(pam_unix)[{process}]: check pass; user unknown"
            yield _failure(second, process, random.choice(hosts), "")
        else:
            yield _failure(second, process, random.choice(hosts), random.choice(guessed))


def _stamp(second: int) -> str:
    """Seconds since the log began as a syslog time; every month is taken to have 28 days."""
    day, second = divmod(second, 86_400)
    minute, second = divmod(second, 60)
    return f"{MONTHS[day // 28 % 12]} {day % 28 + 1:2} {minute // 60:02}:{minute % 60:02}:{second:02}"


def _failure(second: int, process: int, host: str, user: str) -> str:
    named = f" user={user}" if user else ""
    return (
        f"{_stamp(second)} gate sshd(pam_unix)[{process}]: authentication failure; "
        f"logname= uid=0 euid=0 tty=ssh ruser= rhost={host} {named}"
    )


def _success(second: int, process: int, user: str) -> str:
    return f"{_stamp(second)} gate sshd(pam_unix)[{process}]: session opened for user {user} by (uid=0)"


# --------------------------------------------------------------------------------------------------- words


def text_lines(count: int, seed: int = 1) -> Iterator[str]:
    """`count` lines of text in which a few words are frequent and most are rare."""
    random = Random(seed)
    words = VOCABULARY.split()
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    for _ in range(count):
        yield " ".join(random.choices(words, weights, k=random.randrange(5, 12)))


def page_edits(seconds: int, seed: int = 2, *, a_second: int = 10, news: str = "eclipse") -> Iterator[dict[str, Any]]:
    """Edits of pages, `a_second` a second. Everybody writes about the `news` in the last two minutes."""
    lines = text_lines(seconds * a_second, seed)
    random = Random(seed)
    for number, page in enumerate(lines):
        ts = number / a_second
        is_news = ts >= seconds - 120 and random.random() < 0.3
        yield {"ts": ts, "page": f"{page} {news}" if is_news else page}


# ----------------------------------------------------------------------------------------------------- cdr

CUSTOMERS = {"555-0101": "Ada", "555-0102": "Grace", "555-0103": "Edsger", "555-0104": "Barbara", "555-0105": "Donald"}


def customers() -> Iterator[dict[str, str]]:
    """The customers: a phone number and a name each."""
    for number, name in CUSTOMERS.items():
        yield {"number": number, "name": name}


def calls(count: int, seed: int = 3) -> Iterator[dict[str, Any]]:
    """`count` call detail records and, as switches do, some of them once more a little later."""
    random = Random(seed)
    numbers = list(CUSTOMERS)
    recent: list[dict[str, Any]] = []
    for number in range(count):
        caller = random.choice(numbers)
        length = random.randrange(10, 100) * (1 + numbers.index(caller))
        call = {"id": number, "ts": number * 2, "caller": caller, "length": length}
        yield call
        recent = [*recent[-50:], call]
        if random.random() < 0.1:
            yield dict(random.choice(recent))


# ---------------------------------------------------------------------------------------------------- vwap


PRICE_COLUMNS = ("Price", "Volume", "Ask Price", "Ask Size")


def ticks(count: int, seed: int = 4) -> Iterator[dict[str, str]]:
    """`count` rows of trades and quotes, with the columns of an exchange's CSV files that the example reads."""
    random = Random(seed)
    prices = {symbol: random.uniform(20, 120) for symbol in ("ACME", "BOLT", "CROW", "DUNE", "ECHO", "FLUX")}
    for number in range(count):
        symbol = random.choice(list(prices))
        prices[symbol] *= random.gauss(1, 0.0004)
        price, cheap = prices[symbol], random.random() < 0.002  # now and then somebody sells below the market
        hundredths = 5_220_000 + number * 2
        row = {"#RIC": symbol, "Time[G]": _clock(hundredths), **dict.fromkeys(PRICE_COLUMNS, "")}
        if random.random() < 0.25:
            yield {**row, "Type": "Trade", "Price": f"{price:.2f}", "Volume": str(random.randrange(1, 50) * 100)}
        else:
            ask = price * (0.985 if cheap else 1.0005)
            yield {**row, "Type": "Quote", "Ask Price": f"{ask:.2f}", "Ask Size": str(random.randrange(1, 30))}


def _clock(hundredths: int) -> str:
    minutes, rest = divmod(hundredths, 6_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest / 100:06.3f}"


# ------------------------------------------------------------------------------------------------- packets


def dns_packets(count: int, seed: int = 5) -> Iterator[tuple[float, bytes]]:
    """`count` DNS packets as `(time, frame)`, as read from a capture.

    Host 10.0.0.66 is infected and asks for invented domains, 10.0.0.77 sends data out through names of a domain of
    its own, and 10.0.0.88 asks far more than the others.
    """
    random = Random(seed)
    sites = ["www.example.com", "mail.example.org", "news.river.net", "cdn.music.com", "api.weather.org"]
    for number in range(count):
        chance = random.random()
        if chance < 0.02:
            host, name = 66, "".join(random.choices(LETTERS, k=14)) + ".biz"
        elif chance < 0.06:
            data = "".join(random.choices(LETTERS[:6] + string.digits, k=48))
            host, name = 77, f"{data}.drop.example"
        else:
            host, name = 88 if chance < 0.4 else random.randrange(2, 40), random.choice(sites)
        yield 1_700_000_000 + number / 100, dns_query(f"10.0.0.{host}", name)


def dns_query(host: str, name: str) -> bytes:
    """The frame of a DNS question that `host` asks about `name`."""
    import dpkt  # type: ignore[import-untyped]  # here, since only this example needs it

    question = dpkt.dns.DNS(qd=[dpkt.dns.DNS.Q(name=name)])
    datagram = dpkt.udp.UDP(sport=40_000, dport=53, data=bytes(question))
    datagram.ulen = len(datagram)
    address = bytes(int(part) for part in host.split("."))
    packet = dpkt.ip.IP(src=address, dst=bytes([10, 0, 0, 1]), p=dpkt.ip.IP_PROTO_UDP, data=datagram)
    packet.len = len(packet)
    return bytes(dpkt.ethernet.Ethernet(data=packet))
