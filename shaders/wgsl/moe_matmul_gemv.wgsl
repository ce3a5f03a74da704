// y = x Wᵀ with the weights of the expert that a token was routed to: a lane owns one span of four
// rows, span sums meet in workgroup memory and are added in order. The chain: kernels/matmul.rs.
// Grid: (rows / (4 packs), chosen, tokens).
// use: input, order, codes, scale, pieces, partial, sums, close, epilogue

struct Params {
  rows: u32,
  groups: u32,
  first_expert: u32,
  experts: u32,
  share: u32,
  act_stride: u32,
  y_stride: u32,
  y_offset: u32,
  norm: u32,
}

@group(0) @binding(0) var<storage, read> act: array<ActWord>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> ws: array<u32>;
@group(0) @binding(3) var<storage, read> rstd: array<f32>;
@group(0) @binding(4) var<storage, read> route: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<uniform> p: Params;

var<workgroup> span_sums: array<vec4<f32>, 64>;
var<workgroup> total: array<vec4<f32>, 64>;

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let pair = group.z * groups.y + group.y;
  // An expert before the window wraps around and is outside it too. The whole workgroup leaves.
  let expert = route[pair].x - p.first_expert;
  if (expert >= p.experts) { return; }
  let input = pair / p.share;
  let spans = (p.groups + 3u) / 4u;
  // Spans one pass covers, packs of four rows side by side.
  let width = min(spans, 64u);
  let packs = 64u / width;
  let first_row = 4u * packs * group.x;
  let pack = lane / width;
  let r = expert * p.rows +
    min(vec4<u32>(first_row + 4u * pack) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.rows - 1u));
  total[lane] = vec4<f32>();

  for (var base = 0u; base < spans; base += width) {
    let span = base + lane % width;
    var a = vec4<f32>();
    if (pack < packs && span < spans) {
      for (var g = 4u * span; g < min(4u * span + 4u, p.groups); g++) {
        let x = group_input(input, p.act_stride, g, lane);
        a = vec4<f32>(
          group_term(a.x, group_codes(r.x, p.groups, g), x, group_scale(r.x, p.groups, g)),
          group_term(a.y, group_codes(r.y, p.groups, g), x, group_scale(r.y, p.groups, g)),
          group_term(a.z, group_codes(r.z, p.groups, g), x, group_scale(r.z, p.groups, g)),
          group_term(a.w, group_codes(r.w, p.groups, g), x, group_scale(r.w, p.groups, g)));
      }
    }
    workgroupBarrier();
    span_sums[lane] = a;
    workgroupBarrier();
    if (lane < packs) {
      var sum = total[lane];
      for (var s = 0u; s < min(width, spans - base); s++) { sum += span_sums[width * lane + s]; }
      total[lane] = sum;
    }
  }

  if (lane < packs) {
    let row = first_row + 4u * lane;
    let sum = total[lane];
    var scale = 1.0;
    if (p.norm != 0u) { scale = rstd[input]; }
    for (var i = 0u; i < 4u; i++) {
      if (row + i < p.rows) { epilogue(pair, row + i, sum[i], scale); }
    }
  }
}
