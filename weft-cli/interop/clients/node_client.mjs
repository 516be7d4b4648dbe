// node's http with an agent that keeps connections, and fetch.
//
// node_client.mjs URL_OF_WEFT URL_OF_ECHO
import assert from 'node:assert/strict';
import http from 'node:http';

const [weft, echo] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
const big = Buffer.alloc(1_000_000, 'weft ');

function ask(url, options = {}, body = []) {
  return new Promise((resolve, reject) => {
    const request = http.request(url, { agent, ...options }, (response) => {
      const pieces = [];
      response.on('data', (piece) => pieces.push(piece));
      response.on('end', () =>
        resolve({ code: response.statusCode, body: Buffer.concat(pieces), trailers: response.trailers, reused: request.reusedSocket }),
      );
      response.on('error', reject);
    });
    request.on('error', reject);
    for (const piece of body) request.write(piece);
    request.end();
  });
}

// 200 requests, four at a time.
let reused = 0;
for (let round = 0; round < 50; round++) {
  const answers = await Promise.all(['/hello.txt', '/', '/missing', '/sub/'].map((path) => ask(weft + path)));
  assert.deepEqual(answers.map((answer) => answer.code), [200, 200, 404, 200]);
  reused += answers.filter((answer) => answer.reused).length;
}
assert.equal(reused, 196);

const echoed = await ask(`${echo}/echo`, { method: 'POST' }, [big, big, 'end']); // in chunks
assert.deepEqual(echoed.body, Buffer.concat([big, big, Buffer.from('end')]));
const counted = await ask(`${echo}/length`, { method: 'PUT', headers: { 'Content-Length': big.length } }, [big]);
assert.equal(counted.body.toString(), '1000000\n');
const trailers = await ask(`${echo}/chunked?12345`);
assert.equal(trailers.body.length, 12345);
assert.deepEqual({ ...trailers.trailers }, { 'x-count': '12345' });

// It waits for 100 before it sends its body.
const continued = await new Promise((resolve, reject) => {
  const request = http.request(`${echo}/length`, { agent, method: 'POST', headers: { Expect: '100-continue' } });
  request.on('continue', () => request.end('hello'));
  request.on('response', (response) => response.on('data', (piece) => resolve(piece.toString())));
  request.on('error', reject);
  request.flushHeaders();
});
assert.equal(continued, '5\n');

// An upgrade.
const upgraded = await new Promise((resolve, reject) => {
  const request = http.request(`${echo}/upgrade`, { headers: { Connection: 'Upgrade', Upgrade: 'echo' } });
  request.on('upgrade', (response, socket) => {
    socket.write('over and ');
    socket.on('data', (piece) => resolve([response.statusCode, piece.toString()]) || socket.end());
  });
  request.on('error', reject);
  request.end();
});
assert.deepEqual(upgraded, [101, 'over and ']);

// fetch: a streamed upload, a streamed download, and one that is given up.
const upload = new ReadableStream({
  start(controller) {
    for (let i = 0; i < 10; i++) controller.enqueue(new Uint8Array(100_000));
    controller.close();
  },
});
const streamed = await fetch(`${echo}/length`, { method: 'POST', body: upload, duplex: 'half' });
assert.equal(await streamed.text(), '1000000\n');
let size = 0;
for await (const piece of (await fetch(`${weft}/large.bin`)).body) size += piece.length;
assert.equal(size, 5_000_000);
const leaving = new AbortController();
const reader = (await fetch(`${echo}/slow?1000`, { signal: leaving.signal })).body.getReader();
await reader.read();
leaving.abort();
await assert.rejects(reader.read());
assert.equal((await fetch(`${weft}/hello.txt`)).status, 200);

agent.destroy();
console.log(`node ${process.version}, 200 requests on 4 connections, ${reused} times reused`);
