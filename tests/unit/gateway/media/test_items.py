from gateway.media.guard import media_items


def test_every_place_where_chat_has_a_url():
    messages = [
        {"role": "system", "content": "plain"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "https://not.a/medium"},
                {"type": "image_url", "image_url": {"url": "https://a/1", "detail": "low"}},
                {"type": "image_url", "image_url": "https://a/2"},
                {"type": "video_url", "video_url": {"url": "https://a/3"}},
                {"type": "audio_url", "audio_url": {"url": "https://a/4"}},
                {"type": "file", "file": {"file_data": "data:text/plain;base64,YQ=="}},
                {"type": "file", "file": {"file_url": "https://a/5"}},
                {"type": "file", "file": {"file_id": "f"}},
                {"type": "input_audio", "input_audio": {"data": "YQ==", "format": "wav"}},
                {"type": "image_url", "image_url": {"url": None}},
                "odd",
            ],
        },
        {"role": "tool", "content": [{"type": "image_url", "image_url": {"url": "https://a/6"}}]},
    ]
    found = list(media_items(messages))
    assert [item.url for item in found] == [
        "https://a/1",
        "https://a/2",
        "https://a/3",
        "https://a/4",
        "data:text/plain;base64,YQ==",
        "https://a/5",
        "https://a/6",
    ]
    assert [item.kind for item in found] == ["image", "image", "video", "audio", "file", "file", "image"]
    assert found[0].param == "messages[1].content[1].image_url.url"
    assert found[-1].param == "messages[2].content[0].image_url.url"
    found[1].holder[found[1].key] = "data:,"
    assert messages[1]["content"][2] == {"type": "image_url", "image_url": "data:,"}
