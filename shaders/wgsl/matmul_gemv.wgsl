// y = x Wᵀ for up to TOKENS tokens: a lane owns one span of four rows, span sums meet in workgroup
// memory and are added in order. Short rows share a workgroup: with S spans a row, 64 / S packs of
// four rows. The chain: kernels/matmul.rs. Grid: (rows / (4 packs), tokens / TOKENS).
// use: input, order, codes, scale, pieces, partial, sums, close, epilogue

struct Params {
  rows: u32,
  groups: u32,
  tokens: u32,
  act_stride: u32,
  y_stride: u32,
  y_offset: u32,
  norm: u32,
  bias: u32,
  add: u32,
}

@group(0) @binding(0) var<storage, read> act: array<ActWord>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> ws: array<u32>;
@group(0) @binding(3) var<storage, read> rstd: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<uniform> p: Params;

var<workgroup> span_sums: array<vec4<f32>, 64u * TOKENS>;
var<workgroup> total: array<vec4<f32>, 64u * TOKENS>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let spans = (p.groups + 3u) / 4u;
  // Spans one pass covers, packs of four rows side by side.
  let width = min(spans, 64u);
  let packs = 64u / width;
  let token = TOKENS * group.y;
  let first_row = 4u * packs * group.x;
  let pack = lane / width;
  let r = min(vec4<u32>(first_row + 4u * pack) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.rows - 1u));
  for (var o = lane; o < packs * TOKENS; o += 64u) { total[o] = vec4<f32>(); }

  for (var base = 0u; base < spans; base += width) {
    let span = base + lane % width;
    var a: array<vec4<f32>, TOKENS>;
    for (var t = 0u; t < TOKENS; t++) { a[t] = vec4<f32>(); }
    if (pack < packs && span < spans) {
      for (var g = 4u * span; g < min(4u * span + 4u, p.groups); g++) {
        let q0 = group_codes(r.x, p.groups, g);
        let q1 = group_codes(r.y, p.groups, g);
        let q2 = group_codes(r.z, p.groups, g);
        let q3 = group_codes(r.w, p.groups, g);
        let c0 = group_scale(r.x, p.groups, g);
        let c1 = group_scale(r.y, p.groups, g);
        let c2 = group_scale(r.z, p.groups, g);
        let c3 = group_scale(r.w, p.groups, g);
        for (var t = 0u; t < TOKENS; t++) {
          let x = group_input(min(token + t, p.tokens - 1u), p.act_stride, g, lane);
          a[t] = vec4<f32>(
            group_term(a[t].x, q0, x, c0),
            group_term(a[t].y, q1, x, c1),
            group_term(a[t].z, q2, x, c2),
            group_term(a[t].w, q3, x, c3));
        }
      }
    }
    workgroupBarrier();
    for (var t = 0u; t < TOKENS; t++) { span_sums[64u * t + lane] = a[t]; }
    workgroupBarrier();
    for (var o = lane; o < packs * TOKENS; o += 64u) {
      var sum = total[o];
      let start = 64u * (o % TOKENS) + width * (o / TOKENS);
      for (var s = 0u; s < min(width, spans - base); s++) { sum += span_sums[start + s]; }
      total[o] = sum;
    }
  }

  for (var o = lane; o < packs * TOKENS; o += 64u) {
    let n = token + o % TOKENS;
    let row = first_row + 4u * (o / TOKENS);
    if (n < p.tokens) {
      let sum = total[o];
      var scale = 1.0;
      if (p.norm != 0u) { scale = rstd[n]; }
      for (var i = 0u; i < 4u; i++) {
        if (row + i < p.rows) { epilogue(n, row + i, sum[i], scale); }
      }
    }
  }
}
