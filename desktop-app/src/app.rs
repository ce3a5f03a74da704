//! The app's one window: which Twoclock this is, and the models on this machine. Knows no window
//! system; a test shows it without one.

use eframe::egui;
use twoclock::catalogue;
use twoclock::store::{Installed, Store, StoreError, human_bytes};

/// State of the window.
pub struct App {
    store: Result<Store, StoreError>,
    models: Result<Vec<Installed>, String>,
}

impl App {
    /// Looks the models up in `store`; if there is none, the window says why.
    pub fn new(store: Result<Store, StoreError>) -> Self {
        let mut app = Self {
            store,
            models: Ok(Vec::new()),
        };
        app.refresh();
        app
    }

    fn refresh(&mut self) {
        self.models = match &self.store {
            Ok(store) => store.list().map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
    }

    /// Draws the whole window.
    pub fn show(&mut self, ui: &mut egui::Ui) {
        egui::CentralPanel::default().show(ui, |ui| self.content(ui));
    }

    fn content(&mut self, ui: &mut egui::Ui) {
        ui.horizontal(|ui| {
            ui.heading("Twoclock");
            ui.weak(env!("CARGO_PKG_VERSION"));
        });
        ui.label("Large language models on this machine's GPU.");
        ui.separator();
        ui.horizontal(|ui| {
            ui.strong("Models on this machine");
            if ui.button("Look again").clicked() {
                self.refresh();
            }
        });
        match &self.models {
            Err(why) => {
                ui.colored_label(ui.visuals().error_fg_color, why);
            }
            Ok(models) if models.is_empty() => {
                ui.label("None yet.");
                for entry in catalogue::ENTRIES {
                    ui.label(format!(
                        "twoclock pull {} brings {} ({}, {}).",
                        entry.name,
                        entry.title,
                        human_bytes(entry.bytes),
                        entry.licence
                    ));
                }
            }
            Ok(models) => {
                egui::Grid::new("models").striped(true).show(ui, |ui| {
                    for model in models {
                        ui.label(&model.name);
                        ui.label(human_bytes(model.bytes));
                        ui.monospace(model.path.display().to_string());
                        ui.end_row();
                    }
                });
            }
        }
    }
}

impl eframe::App for App {
    fn ui(&mut self, ui: &mut egui::Ui, _frame: &mut eframe::Frame) {
        self.show(ui);
    }
}
