import pytest

from gateway.media.addresses import MediaError
from gateway.media.types import media_type

PNG = b"\x89PNG\r\n\x1a\n...."


@pytest.mark.parametrize(
    ("declared", "body", "kind", "want"),
    [
        ("image/png", PNG, "image", "image/png"),
        ("text/html", PNG, "image", "image/png"),
        ("image/jpeg", b"\xff\xd8\xff\xe0", "image", "image/jpeg"),
        ("", b"RIFF....WEBPVP8 ", "image", "image/webp"),
        ("", b"RIFF....WAVEfmt ", "audio", "audio/wav"),
        ("image/heic", b"....", "image", "image/heic"),
        ("", b"....ftypisom", "video", "video/mp4"),
        ("", b"....ftypavif", "image", "image/avif"),
        ("", b"%PDF-1.7", "file", "application/pdf"),
        ("text/plain", b"hello", "file", "text/plain"),
    ],
)
def test_type(declared, body, kind, want):
    assert media_type(declared, body, kind) == want


@pytest.mark.parametrize(
    ("declared", "body", "kind"),
    [
        ("image/png", b"<html>", "image"),
        ("image/svg+xml", b"<svg>", "image"),
        ("application/json", b"{}", "image"),
        ("image/png", b"", "image"),
        ("video/mp4", PNG, "video"),
        ("text/html", b"<html>", "file"),
    ],
)
def test_something_else(declared, body, kind):
    with pytest.raises(MediaError, match=f"is no {kind}"):
        media_type(declared, body, kind)
