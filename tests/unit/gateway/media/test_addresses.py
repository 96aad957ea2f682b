import ipaddress

import pytest

from gateway.config.contracts import Media
from gateway.media.addresses import MediaError, check_url, public

HTTP = Media(schemes={"http", "https"})


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "192.0.2.1", "198.18.0.1", "240.0.0.1", "::1", "::", "fe80::1", "fc00::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::", "2002:a9fe:a9fe::", "2001:db8::1", "fd00:ec2::254",
    ],
)  # fmt: skip
def test_not_public(address):
    assert not public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "2001:4860:4860::8888"])
def test_public(address):
    assert public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///etc/passwd", "scheme"),
        ("ftp://example.com/a.png", "scheme"),
        ("gopher://example.com/", "scheme"),
        ("//example.com/a.png", "scheme"),
        ("a.png", "scheme"),
        ("http:///a.png", "valid"),
        ("https://example.com:0/a.png", "valid"),
        ("https://example.com:99999/a.png", "valid"),
        ("https://[::1/a.png", "valid"),
        ("https://exa mple.com/a.png", "valid"),
        ("https://example.com\\@10.0.0.1/a.png", "valid"),
        ("https://example.com/\r\nhost: x", "valid"),
        ("https://example.com/" + "a" * 9000, "valid"),
        ("https://example.com@10.0.0.1/a.png", "user information"),
        ("https://user:pass@example.com/a.png", "user information"),
        ("https://@example.com/a.png", "user information"),
        ("http://127.0.0.1/a.png", "address"),
        ("http://[::1]/a.png", "address"),
        ("http://[::ffff:10.0.0.1]/a.png", "address"),
        ("http://[fe80::1%25eth0]/a.png", "address"),
        ("http://169.254.169.254/latest/meta-data/", "address"),
        ("http://2130706433/a.png", "number"),
        ("http://0x7f000001/a.png", "number"),
        ("http://0x7f.1/a.png", "number"),
        ("http://0177.0.0.1/a.png", "number"),
        ("http://127.1/a.png", "number"),
        ("http://127.0.0.1./a.png", "number"),
        ("https://127.0.0.①/a.png", "address"),
        ("https://①②⑦.⓪.⓪.①/a.png", "address"),
        ("https://169.254.169.²⁵⁴/latest/meta-data/", "address"),
        ("https://127。0。0。1/a.png", "address"),
        ("https://0x7f。1/a.png", "number"),
    ],
)
def test_refused_without_resolving(url, why):
    with pytest.raises(MediaError, match=why):
        check_url(url, HTTP)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/a.png",
        "https://1.1.1.1/a",
        "https://4chan.example/x",
        "https://a1/",
        "https://bücher.example/",
    ],
)
def test_may_be_fetched(url):
    assert check_url(url, Media()).scheme == "https"


def test_plain_http_only_where_it_is_allowed():
    with pytest.raises(MediaError, match="scheme"):
        check_url("http://example.com/a.png", Media())
    assert check_url("http://example.com/a.png", HTTP)


@pytest.mark.parametrize(
    ("host", "listed"),
    [
        ("cdn.example.com", True),
        ("CDN.Example.com.", True),
        ("img.net", True),
        ("example.com", False),
        ("evilexample.com", False),
        ("example.com.evil.net", False),
        ("a.img.net", False),
    ],
)
def test_host_list(host, listed):
    policy = Media(hosts=("*.example.com", "img.net"))
    if listed:
        check_url(f"https://{host}/a.png", policy)
    else:
        with pytest.raises(MediaError, match="host"):
            check_url(f"https://{host}/a.png", policy)
