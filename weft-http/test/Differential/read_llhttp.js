// The reading of a conversation by node's HTTP parser (llhttp, strict): one line of answer for
// each line asked. The form of both is described in read_h11.py.
//
// The parser is asked directly, without sockets around it, because then its answer is
// there at once. What node's server does beyond it (a missing Host is refused) is not seen.
'use strict';

const { HTTPParser, allMethods } = process.binding('http_parser');

const hex = (text) => Buffer.from(text, 'latin1').toString('hex');

function fields(flat) {
  const pairs = [];
  for (let i = 0; i < flat.length; i += 2) pairs.push(`${hex(flat[i])}=${hex(flat[i + 1])}`);
  return pairs.join(',');
}

function read(data) {
  const messages = [];
  let current = null; // the message whose head is complete
  let flushed = { headers: [], url: '' }; // what came before it was
  let closed = false;
  const parser = new HTTPParser();
  parser.initialize(HTTPParser.REQUEST, {}, 65536, HTTPParser.kLenientNone);
  parser[HTTPParser.kOnHeaders | 0] = (headers, url) => {
    if (current) current.trailers.push(...headers);
    else {
      flushed.headers.push(...headers);
      flushed.url += url;
    }
  };
  parser[HTTPParser.kOnHeadersComplete | 0] = (major, minor, headers, method, url, _s, _m, upgrade, keepAlive) => {
    current = {
      method: allMethods[method],
      target: url === undefined ? flushed.url : url,
      headers: headers === undefined ? flushed.headers : headers,
      body: [],
      trailers: [],
      last: !keepAlive || upgrade,
    };
    flushed = { headers: [], url: '' };
    return 0;
  };
  parser[HTTPParser.kOnBody | 0] = (piece) => current.body.push(Buffer.from(piece));
  parser[HTTPParser.kOnMessageComplete | 0] = () => {
    messages.push(
      [
        hex(current.method),
        hex(current.target),
        fields(current.headers),
        Buffer.concat(current.body).toString('hex'),
        fields(current.trailers),
      ].join('/'),
    );
    closed = closed || current.last;
    current = null;
  };
  const verdict = (outcome) => {
    if (closed) return 'closed';
    if (!(outcome instanceof Error)) return null;
    return outcome.code === 'HPE_INVALID_EOF_STATE' ? 'partial' : `refused:${outcome.code}`;
  };
  const after = data.length > 0 ? parser.execute(data) : 0;
  let ending = verdict(after);
  if (ending === null && after < data.length) ending = 'closed'; // an upgrade
  if (ending === null) ending = verdict(parser.finish()) || (current ? 'partial' : 'clean');
  parser.close();
  return [ending, ...messages].join(' ');
}

require('readline')
  .createInterface({ input: process.stdin })
  .on('line', (line) => process.stdout.write(`${read(Buffer.from(line, 'hex'))}\n`));
