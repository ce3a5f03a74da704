// Products of PACKS packs of four rows a lane with the one token of a step, for processors: as matmul_row,
// without barrier and workgroup memory. Chain: kernels/matmul.rs.
// A kernel that uses this module has `act`, what `codes` and `scale` need, `p.groups`, `p.act_stride`, and
// says in `rows_of` which rows a pack is.
const ROWS = 4u * PACKS;

// The lane's pack numbered k: those of one number are neighbours, so that eight lanes have a group of 32.
fn pack_of(group: u32, k: u32, lane: u32) -> u32 { return 8u * (PACKS * group + k) + lane; }

fn row_products(group: u32, lane: u32) -> array<vec4<f32>, PACKS> {
  var rows: array<u32, ROWS>;
  for (var k = 0u; k < PACKS; k++) {
    let r = rows_of(pack_of(group, k, lane));
    rows[4u * k] = r.x;
    rows[4u * k + 1u] = r.y;
    rows[4u * k + 2u] = r.z;
    rows[4u * k + 3u] = r.w;
  }
  // A loop that no compiler can count, but where a row is little code: see matmul_row.
  let n = select(ROWS + (p.groups >> 30u), ROWS, UNROLL == 1u);

  // Of the span at work, and of all before it.
  var a: array<f32, ROWS>;
  var total: array<f32, ROWS>;
  for (var g = 0u; g < p.groups; g++) {
    let x = group_input(0u, p.act_stride, g, lane);
    for (var i = 0u; i < n; i++) {
      let at = min(i, ROWS - 1u);
      let q = group_codes(rows[at], p.groups, g);
      a[at] = group_term(a[at], q, x, group_scale(rows[at], p.groups, g));
    }
    if ((g & 3u) == 3u) {
      for (var i = 0u; i < ROWS; i++) {
        total[i] += a[i];
        a[i] = 0.0;
      }
    }
  }
  var y: array<vec4<f32>, PACKS>;
  for (var k = 0u; k < PACKS; k++) {
    // A short last span; else + 0, which changes no bit of a sum that began at + 0.
    y[k] = vec4(total[4u * k] + a[4u * k], total[4u * k + 1u] + a[4u * k + 1u],
      total[4u * k + 2u] + a[4u * k + 2u], total[4u * k + 3u] + a[4u * k + 3u]);
  }
  return y;
}

fn constant(word: u32) -> f32 { return constants[word / 4u][word % 4u]; }

const NO_BIAS = 0xffffffffu;

// The biases of four rows, where there are any.
fn bias_of(rows: vec4<u32>) -> vec4<f32> {
  if (p.bias == NO_BIAS) { return vec4<f32>(); }
  return vec4(constant(p.bias + rows.x), constant(p.bias + rows.y), constant(p.bias + rows.z),
    constant(p.bias + rows.w));
}
