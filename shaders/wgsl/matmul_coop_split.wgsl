// y = x Wᵀ by cooperative matrices of 16 × 16 × 16, for few tokens: 16 rows × 16 tokens a workgroup,
// whose SUBGROUPS subgroups take turns at the spans of a row; span sums meet in workgroup memory and
// are added in order. The chain: kernels/matmul_coop.rs. Grid: (rows / 16, tokens / 16).
// No subgroup operation may stand in this module: drivers have crashed on both together.
// use: order, codes, scale, tiles, epilogue
// enable: f16, wgpu_cooperative_matrix

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

@group(0) @binding(0) var<storage, read> act: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> ws: array<u32>;
@group(0) @binding(3) var<storage, read> rstd: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<uniform> p: Params;

const LANES = SUBGROUPS * SUBGROUP_LANES;
const TILE = 16u * PITCH;

// Of each subgroup.
var<workgroup> w_tile: array<f16, SUBGROUPS * TILE>;
var<workgroup> x_tile: array<f16, SUBGROUPS * TILE>;
var<workgroup> done: array<f32, SUBGROUPS * 256u>;
// [row][token]
var<workgroup> total: array<f32, 256u>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let first_row = 16u * group.x;
  let first_token = 16u * group.y;
  let subgroup = lane / SUBGROUP_LANES;
  let own = lane % SUBGROUP_LANES;
  let spans = (p.groups + SPAN - 1u) / SPAN;
  for (var i = lane; i < 256u; i += LANES) { total[i] = 0.0; }

  for (var base = 0u; base < spans; base += SUBGROUPS) {
    var span = coop_mat16x16<f32, C>();
    for (var in_span = 0u; in_span < SPAN; in_span++) {
      let g = SPAN * (base + subgroup) + in_span;
      workgroupBarrier();
      for (var i = own; i < 32u; i += SUBGROUP_LANES) {
        let at = TILE * subgroup + PITCH * (i % 16u);
        if (i < 16u) {
          put_weights(at, min(first_row + i, p.rows - 1u), g);
        } else {
          put_inputs(at, min(first_token + i - 16u, p.tokens - 1u), g);
        }
      }
      workgroupBarrier();
      for (var k = 0u; k < 32u; k += 16u) {
        let a = coopLoadT<coop_mat16x16<f16, A>>(&w_tile[TILE * subgroup + k], PITCH);
        let b = coopLoad<coop_mat16x16<f16, B>>(&x_tile[TILE * subgroup + k], PITCH);
        span = coopMultiplyAdd(a, b, span);
      }
    }
    coopStoreT(span, &done[256u * subgroup], 16u);
    workgroupBarrier();
    for (var i = lane; i < 256u; i += LANES) {
      var sum = total[i];
      for (var s = 0u; s < min(SUBGROUPS, spans - base); s++) { sum += done[256u * s + i]; }
      total[i] = sum;
    }
    workgroupBarrier();
  }

  for (var i = lane; i < 256u; i += LANES) {
    let row = first_row + i / 16u;
    let n = first_token + i % 16u;
    if (row < p.rows && n < p.tokens) {
      var scale = 1.0;
      if (p.norm != 0u) { scale = rstd[n]; }
      epilogue(n, row, total[i], scale);
    }
  }
}
