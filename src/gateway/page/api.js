// Talking to the server: one streamed chat, and how busy it is.

// A refusal, or an answer that broke off.
export class ApiError extends Error {}

function headers(key) {
  const all = { "Content-Type": "application/json" };
  if (key) all.Authorization = `Bearer ${key}`;
  return all;
}

async function refusal(response) {
  let message = `The server answered with status ${response.status}.`;
  try {
    message = (await response.json()).error.message;
  } catch {
    // Not our server's kind of error: the status is all there is to say.
  }
  const wait = response.headers.get("Retry-After");
  return new ApiError(wait ? `${message} (Try again in ${wait} s.)` : message);
}

// The data of each server-sent event in a byte stream.
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2)) {
      const event = rest.slice(0, end);
      if (event.startsWith("data: ")) yield event.slice(6);
    }
  }
}

// Yields {text}, and at the end {finish, usage, timings}, as they come.
export async function* chat(request, key, signal) {
  const response = await fetch("/v1/chat/completions", {
    method: "POST",
    headers: headers(key),
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) throw await refusal(response);
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.message);
    const [choice] = chunk.choices;
    if (choice?.delta.content) yield { text: choice.delta.content };
    if (choice?.finish_reason) yield { finish: choice.finish_reason, timings: chunk.timings };
    if (chunk.usage) yield { usage: chunk.usage };
  }
  throw new ApiError("The connection to the server broke off.");
}

export async function load(key) {
  const response = await fetch("/api/load", { headers: headers(key) });
  if (!response.ok) throw await refusal(response);
  return response.json();
}
