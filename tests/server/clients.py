"""The server as programs see it through the `openai` and `anthropic` packages. Takes the base URL and
the name of a model that was taught to call tools; the key is in OPENAI_API_KEY."""

import json
import sys

import anthropic
import openai
from pydantic import BaseModel

base, model = sys.argv[1:]
client = openai.OpenAI(base_url=f"{base}/v1", max_retries=0, timeout=60)
claude = anthropic.Anthropic(base_url=base, api_key=client.api_key, max_retries=0, timeout=60)
schema = {"type": "object", "properties": {"wet": {"type": "boolean"}}, "required": ["wet"],
          "additionalProperties": False}
messages = [{"role": "user", "content": "the cat"}]


def chat(**more):
    return client.chat.completions.create(model=model, messages=messages, **{"max_tokens": 12, "seed": 1, **more})


def refused(kind, status, param, call, code=...):
    try:
        call()
    except kind as error:
        assert error.status_code == status, error
        assert error.param == param, error
        assert code is ... or error.code == code, error
        assert error.request_id
    else:
        raise AssertionError(f"{param} was not refused")


def test_chat():
    whole = chat()
    choice = whole.choices[0]
    assert whole.object == "chat.completion" and whole.model == model
    assert choice.message.role == "assistant" and choice.finish_reason in ("stop", "length")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert whole.usage.prompt_tokens_details.cached_tokens >= 0
    assert [c.index for c in chat(n=3, temperature=1).choices] == [0, 1, 2]


def test_stream():
    whole = chat()
    text, usage, reason = "", None, None
    for chunk in chat(stream=True, stream_options={"include_usage": True}):
        if chunk.usage:
            usage = chunk.usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
    assert text == whole.choices[0].message.content
    assert reason == whole.choices[0].finish_reason
    assert usage.completion_tokens == whole.usage.completion_tokens
    # Left in the middle.
    with chat(stream=True, max_tokens=400, extra_body={"ignore_eos": True}) as stream:
        next(iter(stream))


def test_structured_output():
    class Answer(BaseModel):
        rains: bool

    parsed = client.chat.completions.parse(model=model, messages=messages, response_format=Answer, max_tokens=400, seed=1)
    assert isinstance(parsed.choices[0].message.parsed.rains, bool)
    answer = chat(extra_body={"structured_outputs": {"choice": ["yes", "no"]}})
    assert answer.choices[0].message.content in ("yes", "no")
    answer = chat(response_format={"type": "json_object"}, max_tokens=200)
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(answer.choices[0].message.content), dict)


def test_logprobs():
    content = chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert content and all(len(position.top_logprobs) == 2 and position.logprob <= 0 for position in content)
    echoed = client.completions.create(model=model, prompt="a dog", echo=True, logprobs=1, max_tokens=0)
    logprobs = echoed.choices[0].logprobs
    assert echoed.choices[0].text == "a dog" == "".join(logprobs.tokens)
    assert logprobs.token_logprobs[0] is None and logprobs.text_offset[0] == 0


def test_completions():
    whole = client.completions.create(model=model, prompt=["a", "b"], max_tokens=4, n=2, temperature=0)
    assert len(whole.choices) == 4
    ids = client.completions.create(model=model, prompt=[1, 2, 3], max_tokens=1)
    assert ids.usage.prompt_tokens == 3
    pieces = client.completions.create(model=model, prompt="a", max_tokens=4, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in pieces) == whole.choices[0].text


def test_embeddings():
    # The package asks for base64 unless told otherwise.
    coded = client.embeddings.create(model=model, input=["the cat", "a dog"])
    plain = client.embeddings.create(model=model, input=["the cat", "a dog"], encoding_format="float")
    assert len(coded.data) == 2 and coded.usage.prompt_tokens > 2
    for one, other in zip(coded.data, plain.data):
        assert all(abs(a - b) < 1e-6 for a, b in zip(one.embedding, other.embedding, strict=True))
    assert len(client.embeddings.create(model=model, input="a", dimensions=4).data[0].embedding) == 4


def test_models():
    assert [m.id for m in client.models.list()] == [model]
    assert client.models.retrieve(model).context_length == 512
    listed = list(claude.models.list())
    assert [m.id for m in listed] == [model]
    for one in [*listed, claude.models.retrieve(model)]:
        assert (one.type, one.display_name, one.max_input_tokens) == ("model", model, 512)
        assert abs(one.created_at.timestamp() - client.models.retrieve(model).created) < 1


def test_tools():
    tools = [{"type": "function", "function": {"name": "rain", "parameters": schema}}]
    ask = {"model": model, "messages": messages, "tools": tools, "tool_choice": "required",
           "parallel_tool_calls": False, "max_tokens": 400, "seed": 1}
    choice = client.chat.completions.create(**ask).choices[0]
    call = choice.message.tool_calls[0].function
    assert choice.finish_reason == "tool_calls" and call.name == "rain"
    assert isinstance(json.loads(call.arguments)["wet"], bool)
    with client.chat.completions.stream(**ask) as stream:
        final = stream.get_final_completion().choices[0].message.tool_calls[0].function
    assert (final.name, final.arguments) == (call.name, call.arguments)


def test_responses():
    ask = {"model": model, "input": "the cat", "max_output_tokens": 8, "temperature": 0}
    whole = client.responses.create(**ask)
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    with client.responses.stream(**ask) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    assert text == whole.output_text
    tools = [{"type": "function", "name": "rain", "parameters": schema, "strict": True}]
    called = client.responses.create(model=model, input="the cat", tools=tools, tool_choice="required",
                                     max_output_tokens=400)
    assert called.output[0].type == "function_call" and called.output[0].name == "rain"
    refused(openai.BadRequestError, 400, "input", lambda: client.responses.create(model=model, input=[]))


def test_anthropic():
    ask = {"model": model, "messages": messages, "max_tokens": 8, "extra_body": {"temperature": 0}}
    whole = claude.messages.create(**ask)
    assert whole.role == "assistant" and whole.stop_reason in ("end_turn", "max_tokens")
    with claude.messages.stream(**ask) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
    counted = claude.messages.count_tokens(model=model, messages=messages)
    assert counted.input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens
    tools = [{"name": "rain", "input_schema": schema}]
    # One call: where a second is cut before its name, what there is of it is text.
    called = claude.messages.create(model=model, messages=messages, tools=tools, max_tokens=400,
                                    tool_choice={"type": "any", "disable_parallel_tool_use": True})
    assert called.stop_reason in ("tool_use", "max_tokens") and called.content[0].name == "rain"
    for error, wrong in [(anthropic.NotFoundError, {"model": "other"}), (anthropic.BadRequestError, {"messages": []})]:
        try:
            claude.messages.create(**{**ask, **wrong})
        except error as refusal:
            assert refusal.body["error"]["message"] and refusal.request_id
        else:
            raise AssertionError(f"{wrong} was not refused")


def test_errors():
    bad = openai.BadRequestError
    refused(bad, 400, "temperature", lambda: chat(temperature=-1))
    refused(bad, 400, "top_logprobs", lambda: chat(logprobs=True, top_logprobs=99))
    wrong = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "numbre"}}}
    refused(bad, 400, "response_format.json_schema.schema", lambda: chat(response_format=wrong))
    long = [{"role": "user", "content": "the cat " * 600}]
    for stream in (False, True):
        refused(bad, 400, "messages", lambda: client.chat.completions.create(
            model=model, messages=long, stream=stream), code="context_length_exceeded")
    refused(openai.NotFoundError, 404, "model", lambda: client.models.retrieve("other"), code="model_not_found")
    stranger = client.with_options(api_key="wrong")
    refused(openai.AuthenticationError, 401, None, stranger.models.list, code="invalid_api_key")


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(f"{name} ... ok")
