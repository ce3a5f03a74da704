// What follows from a pass, by one lane. The body gives `bin(at, b)`: bin b of the row whose words
// begin at `at`.
const FLOOR = -3.0e38f;

// a · b as (low, high).
fn mul_wide(a: u32, b: u32) -> vec2<u32> {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let cross_a = (a >> 16u) * (b & 0xffffu);
  let cross_b = (a & 0xffffu) * (b >> 16u);
  let middle = (low >> 16u) + (cross_a & 0xffffu) + (cross_b & 0xffffu);
  let high = (a >> 16u) * (b >> 16u) + (cross_a >> 16u) + (cross_b >> 16u) + (middle >> 16u);
  return vec2((low & 0xffffu) | (middle << 16u), high);
}

fn add_wide(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn reaches(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.y > b.y || (a.y == b.y && a.x >= b.x);
}

fn walk_max(record: u32, at: u32) {
  let top = order_value(cut[at + CUT_MAX]);
  let gap = bitcast<f32>(step[record + SAMPLE_MIN_P]);
  cut[at + CUT_MAX] = 0u;
  cut[at + CUT_CUT] = max(order_key(top + gap), order_key(FLOOR));
  cut[at + CUT_PREFIX] = 0u;
  cut[at + CUT_RANK] = step[record + SAMPLE_TOP_K];
  cut[at + CUT_ABOVE] = 0u;
  cut[at + CUT_ABOVE + 1u] = 0u;
  cut[at + CUT_TOP] = bitcast<u32>(top);
}

fn walk_count(at: u32, digit: u32) {
  var rank = cut[at + CUT_RANK];
  if (rank == 0u) {
    return;
  }
  var found = false;
  var digit_found = 0u;
  for (var i = 0u; i < 256u && !found; i++) {
    let count = bin(at, 255u - i).x;
    if (rank <= count) {
      digit_found = 255u - i;
      found = true;
    } else {
      rank -= count;
    }
  }
  // Fewer than k reach the cut: it stays where it is.
  let prefix = (cut[at + CUT_PREFIX] << 8u) | digit_found;
  let last = digit == 3u;
  if (found && last) {
    cut[at + CUT_CUT] = max(cut[at + CUT_CUT], prefix);
  }
  cut[at + CUT_RANK] = select(0u, rank, found && !last);
  cut[at + CUT_PREFIX] = select(0u, prefix, found && !last);
}

fn walk_mass(record: u32, at: u32, digit: u32) {
  if (digit == 0u) {
    var total = vec2(0u);
    for (var i = 0u; i < 256u; i++) {
      total = add_wide(total, bin(at, i));
    }
    let p = step[record + SAMPLE_TOP_P];
    let part = add_wide(mul_wide(total.y, p), vec2(mul_wide(total.x, p).y, 0u));
    cut[at + CUT_TARGET] = select(part.x, 1u, part.x == 0u && part.y == 0u);
    cut[at + CUT_TARGET + 1u] = part.y;
  }
  let goal = vec2(cut[at + CUT_TARGET], cut[at + CUT_TARGET + 1u]);
  var above = vec2(cut[at + CUT_ABOVE], cut[at + CUT_ABOVE + 1u]);
  var digit_found = 0u;
  var found = false;
  for (var i = 0u; i < 256u && !found; i++) {
    let sum = add_wide(above, bin(at, 255u - i));
    if (reaches(sum, goal)) {
      digit_found = 255u - i;
      found = true;
    } else {
      above = sum;
    }
  }
  let prefix = (cut[at + CUT_PREFIX] << 8u) | digit_found;
  let last = digit == 3u;
  if (last) {
    cut[at + CUT_CUT] = max(cut[at + CUT_CUT], prefix);
  }
  cut[at + CUT_PREFIX] = select(prefix, 0u, last);
  cut[at + CUT_ABOVE] = above.x;
  cut[at + CUT_ABOVE + 1u] = above.y;
}

fn walk(record: u32, at: u32, digit: u32) {
  switch STAGE {
    case STAGE_COUNT: { walk_count(at, digit); }
    case STAGE_MASS: { walk_mass(record, at, digit); }
    default: { walk_max(record, at); }
  }
}
