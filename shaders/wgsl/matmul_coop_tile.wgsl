// y = x Wᵀ by cooperative matrices of 16 × 16 × 16, for many tokens: SUBGROUPS subgroups side by side
// along the rows, each with 16 TILES_ROW rows of 16 TILES_TOKEN tokens. The chain:
// kernels/matmul_coop.rs. Grid: (rows / (16 TILES_ROW SUBGROUPS), tokens / (16 TILES_TOKEN)).
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
const ROWS = 16u * TILES_ROW * SUBGROUPS;
const TOKENS = 16u * TILES_TOKEN;

var<workgroup> w_tile: array<f16, ROWS * PITCH>;
var<workgroup> x_tile: array<f16, TOKENS * PITCH>;
// A finished matrix of each subgroup.
var<workgroup> done: array<f32, SUBGROUPS * 256u>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let first_row = ROWS * group.x;
  let first_token = TOKENS * group.y;
  let subgroup = lane / SUBGROUP_LANES;
  var span: array<coop_mat16x16<f32, C>, TILES_ROW * TILES_TOKEN>;
  var total: array<coop_mat16x16<f32, C>, TILES_ROW * TILES_TOKEN>;

  for (var g = 0u; g < p.groups; g++) {
    workgroupBarrier();
    for (var i = lane; i < ROWS + TOKENS; i += LANES) {
      if (i < ROWS) {
        put_weights(PITCH * i, min(first_row + i, p.rows - 1u), g);
      } else {
        let n = i - ROWS;
        put_inputs(PITCH * n, min(first_token + n, p.tokens - 1u), g);
      }
    }
    workgroupBarrier();
    for (var k = 0u; k < 32u; k += 16u) {
      for (var r = 0u; r < TILES_ROW; r++) {
        let row = 16u * (TILES_ROW * subgroup + r);
        let a = coopLoadT<coop_mat16x16<f16, A>>(&w_tile[PITCH * row + k], PITCH);
        for (var t = 0u; t < TILES_TOKEN; t++) {
          let b = coopLoad<coop_mat16x16<f16, B>>(&x_tile[PITCH * 16u * t + k], PITCH);
          let at = TILES_TOKEN * r + t;
          span[at] = coopMultiplyAdd(a, b, span[at]);
        }
      }
    }
    if ((g % SPAN) == SPAN - 1u || g + 1u == p.groups) {
      for (var i = 0u; i < TILES_ROW * TILES_TOKEN; i++) {
        total[i] = total[i] + span[i];
        span[i] = coop_mat16x16<f32, C>();
      }
    }
  }

  // No lane knows which elements of a matrix it holds: through workgroup memory, [row][token].
  for (var r = 0u; r < TILES_ROW; r++) {
    for (var t = 0u; t < TILES_TOKEN; t++) {
      workgroupBarrier();
      coopStoreT(total[TILES_TOKEN * r + t], &done[256u * subgroup], 16u);
      workgroupBarrier();
      for (var i = lane; i < SUBGROUPS * 256u; i += LANES) {
        let row = first_row + 16u * (TILES_ROW * (i / 256u) + r) + i % 256u / 16u;
        let n = first_token + 16u * t + i % 16u;
        if (row < p.rows && n < p.tokens) {
          var scale = 1.0;
          if (p.norm != 0u) { scale = rstd[n]; }
          epilogue(n, row, done[i], scale);
        }
      }
    }
  }
}
