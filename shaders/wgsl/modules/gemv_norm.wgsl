// Products of four rows and a norm's output, which is made on the way: a workgroup first sums its tokens'
// squares, a lane a slot of 32; then a lane owns one span of p.lane_packs packs of four rows, which share what
// it makes of the inputs. What crosses lanes meets in workgroup memory and is added in order; sums of a lane
// wait there too, so that its packs stay a loop, whose registers do not grow with it. Chains:
// kernels/rms_norm.rs and kernels/matmul.rs.
// A kernel that uses this module has `x`, `constants`, what `codes` and `scale` need, `p.groups`,
// `p.tokens`, `p.lane_packs`, `p.gains4`, `p.bias`, `p.eps`, TOKENS and LANE_PACKS, the most that a lane may
// have, and says in `rows_of` which rows a pack is. Rows have 32 p.groups elements, two spans at least.

// [pack of the lane][token][lane].
var<workgroup> span_sums: array<vec4<f32>, 64u * LANE_PACKS * TOKENS>;
// [pack][token].
var<workgroup> total: array<vec4<f32>, 32u * LANE_PACKS * TOKENS>;
// Squares of slots.
var<workgroup> slots: array<f32, 64u * TOKENS>;
// Their sums, then rstd.
var<workgroup> rstds: array<f32, TOKENS>;

// Spans that one pass covers.
fn span_width() -> u32 { return min((p.groups + 3u) / 4u, 64u); }

// Packs of four rows that a workgroup has.
fn group_packs() -> u32 { return p.lane_packs * (64u / span_width()); }

// First vector of a group of one of the tokens from `token` on.
fn group_at(token: u32, t: u32, group: u32) -> u32 {
  return 8u * (min(token + t, p.tokens - 1u) * p.groups + group);
}

fn slot_squares(at: u32) -> f32 {
  var s = fma(x[at], x[at], vec4<f32>());
  for (var j = 1u; j < 8u; j++) { s = fma(x[at + j], x[at + j], s); }
  return (s.x + s.y) + (s.z + s.w);
}

fn find_rstds(token: u32, lane: u32) {
  if (lane < TOKENS) { rstds[lane] = 0.0; }
  for (var base = 0u; base < p.groups; base += 64u) {
    let group = min(base + lane, p.groups - 1u);
    for (var t = 0u; t < TOKENS; t++) { slots[64u * t + lane] = slot_squares(group_at(token, t, group)); }
    workgroupBarrier();
    if (lane < TOKENS) {
      var sum = rstds[lane];
      for (var s = 0u; s < min(64u, p.groups - base); s++) { sum += slots[64u * lane + s]; }
      rstds[lane] = sum;
    }
    workgroupBarrier();
  }
  if (lane < TOKENS) { rstds[lane] = 1.0 / sqrt(rstds[lane] / f32(32u * p.groups) + p.eps); }
  workgroupBarrier();
}

// A group of a token as the matrix takes it.
fn normed_input(at: u32, group: u32, r: f32) -> Input {
  var v: Codes;
  for (var j = 0u; j < 8u; j++) { v[j] = normed4(x[at + j], constants[p.gains4 + 8u * group + j], r); }
  return input_of(v);
}

// The sums of a workgroup's packs, of which `first` is the first, for the tokens from `token` on, in `total`.
fn gemv(first: u32, token: u32, lane: u32) {
  find_rstds(token, lane);
  let spans = (p.groups + 3u) / 4u;
  let width = span_width();
  let packs = group_packs();
  let first_pack = p.lane_packs * (lane / width);
  for (var o = lane; o < packs * TOKENS; o += 64u) { total[o] = vec4<f32>(); }

  for (var base = 0u; base < spans; base += width) {
    let span = base + lane % width;
    for (var i = 0u; i < p.lane_packs * TOKENS; i++) { span_sums[64u * i + lane] = vec4<f32>(); }
    if (first_pack < packs && span < spans) {
      for (var g = 4u * span; g < min(4u * span + 4u, p.groups); g++) {
        var inputs: array<Input, TOKENS>;
        for (var t = 0u; t < TOKENS; t++) {
          inputs[t] = normed_input(group_at(token, t, g), g, rstds[t]);
        }
        for (var i = 0u; i < p.lane_packs; i++) {
          let r = rows_of(first + first_pack + i);
          let q0 = group_codes(r.x, p.groups, g);
          let q1 = group_codes(r.y, p.groups, g);
          let q2 = group_codes(r.z, p.groups, g);
          let q3 = group_codes(r.w, p.groups, g);
          let c0 = group_scale(r.x, p.groups, g);
          let c1 = group_scale(r.y, p.groups, g);
          let c2 = group_scale(r.z, p.groups, g);
          let c3 = group_scale(r.w, p.groups, g);
          for (var t = 0u; t < TOKENS; t++) {
            let at = 64u * (TOKENS * i + t) + lane;
            let a = span_sums[at];
            span_sums[at] = vec4<f32>(
              group_term(a.x, q0, inputs[t], c0),
              group_term(a.y, q1, inputs[t], c1),
              group_term(a.z, q2, inputs[t], c2),
              group_term(a.w, q3, inputs[t], c3));
          }
        }
      }
    }
    workgroupBarrier();
    for (var o = lane; o < packs * TOKENS; o += 64u) {
      var sum = total[o];
      let pack = o / TOKENS;
      let of_lane = TOKENS * (pack % p.lane_packs) + o % TOKENS;
      let start = 64u * of_lane + width * (pack / p.lane_packs);
      for (var s = 0u; s < min(width, spans - base); s++) { sum += span_sums[start + s]; }
      total[o] = sum;
    }
    workgroupBarrier();
  }
}

fn constant(word: u32) -> f32 { return constants[word / 4u][word % 4u]; }

const NO_BIAS = 0xffffffffu;

// The bias of a row, where there is one.
fn bias_of(row: u32) -> f32 {
  if (p.bias == NO_BIAS) { return 0.0; }
  return constant(p.bias + row);
}

// Rows r, a pack, of a token, done; `o` is where their sums are.
fn gemv_rows(o: u32, r: vec4<u32>) -> vec4<f32> {
  let bias = vec4(bias_of(r.x), bias_of(r.y), bias_of(r.z), bias_of(r.w));
  return fma(total[o], vec4<f32>(last_scale(rstds[o % TOKENS])), bias);
}
