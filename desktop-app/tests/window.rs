//! Opens the app's window on whatever Vulkan device is there and looks at it as a user would.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

use std::fs;

use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use twoclock::store::Store;
use twoclock_desktop::app::App;

fn open(home: &std::path::Path) -> Harness<'static, App> {
    Harness::builder()
        .with_size([640.0, 400.0])
        .wgpu()
        .build_ui_state(
            |ui, app: &mut App| app.show(ui),
            App::new(Ok(Store::at(home))),
        )
}

#[test]
fn shows_models_as_they_come() {
    let home = tempfile::tempdir().unwrap();
    let mut window = open(home.path());
    window.run();
    window.get_by_label("Twoclock");
    window.get_by_label(env!("CARGO_PKG_VERSION"));
    window.get_by_label("None yet.");
    window.get_by_label_contains("twoclock pull smollm2");

    let folder = home.path().join("models/tiny");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("tiny.gguf"), [0; 1500]).unwrap();
    window.get_by_label("Look again").click();
    window.run();
    window.get_by_label("tiny");
    window.get_by_label("1.5 kB");
    assert!(window.query_by_label("None yet.").is_none());

    // The pixels: something is drawn over the background.
    let image = window.render().unwrap();
    assert_eq!((image.width(), image.height()), (640, 400));
    let background = *image.get_pixel(639, 399);
    let drawn = image.pixels().filter(|&&pixel| pixel != background).count();
    assert!(
        drawn > 500,
        "only {drawn} pixels differ from the background"
    );
    if let Some(to) = std::env::var_os("TWOCLOCK_WINDOW_PNG") {
        image.save(to).unwrap();
    }
}
